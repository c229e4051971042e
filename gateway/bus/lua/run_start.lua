-- The owner takes the next input. ARGV: epoch, op. Returns the queue entry (36 characters of run id, then the prompt),
-- or '' when none waits or one is active. The entry is kept while its run is active.
if not open_session() then return redis.error_reply('TR not_found') end
local fenced = fence(ARGV[1], ARGV[2])
if fenced == 'repeated' then return redis.call('HGET', base, 'run_entry') or '' end
if fenced then return fenced end
local entry = not redis.call('HGET', base, 'run') and redis.call('LPOP', base .. ':runs') or nil
if not entry then
  if not redis.call('HGET', base, 'run') then redis.call('SREM', partition .. 'work', sid()) end
  commit()
  return ''
end
local run_id = string.sub(entry, 1, 36)
append('{"type":"run_started","run_id":"' .. run_id .. '"}')
commit('run', run_id, 'run_entry', entry)
return entry
