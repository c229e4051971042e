-- Cancels the active run, or the oldest one that waits. ARGV: idempotency key, fingerprint.
-- Returns {run_id, 'active'|'queued'|'none'}; an active run ends by its owner's word.
if not open_session() then return redis.error_reply('TR not_found') end
local stored, conflict = replay(ARGV[1], ARGV[2])
if conflict then return conflict end
if stored then
  local kind, run_id = string.match(stored, '^(%S+) (%S*)$')
  return { run_id, kind }
end
local run_id, kind = redis.call('HGET', base, 'run'), 'active'
if run_id then
  tell_owner('K', run_id)
else
  local entry = redis.call('LPOP', base .. ':runs')
  if entry then
    run_id, kind = string.sub(entry, 1, 36), 'queued'
    append('{"type":"run_cancelled","run_id":"' .. run_id .. '"}')
  else
    run_id, kind = '', 'none'
  end
end
remember(ARGV[1], ARGV[2], kind .. ' ' .. run_id, C.idempotency_ttl)
commit()
return { run_id, kind }
