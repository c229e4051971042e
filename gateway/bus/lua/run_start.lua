-- The owner takes the next input. ARGV: epoch, op. Returns the queue entry (36 characters of run id, then the prompt),
-- or '' when none waits. The entry is kept while its run is active.
-- The owner asks when it runs nothing: a run that is active here had its end, and a failover lost that.
if not open_session() then return redis.error_reply('TR not_found') end
local fenced = fence(ARGV[1], ARGV[2])
if fenced == 'repeated' then return redis.call('HGET', base, 'run_entry') or '' end
if fenced then return fenced end
local lost = redis.call('HGET', base, 'run')
if lost then
  fail_open_calls()
  append('{"type":"run_failed","run_id":"' .. lost .. '","error":' .. C.end_lost .. '}')
  redis.call('HDEL', base, 'run', 'run_entry')
end
local entry = redis.call('LPOP', base .. ':runs')
if not entry then
  redis.call('SREM', partition .. 'work', sid())
  commit()
  return ''
end
local run_id = string.sub(entry, 1, 36)
append('{"type":"run_started","run_id":"' .. run_id .. '"}')
commit('run', run_id, 'run_entry', entry)
return entry
