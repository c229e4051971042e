-- Makes a session. ARGV: agent_id, display_name (text), api_key label, session_created payload, token hash, token id,
-- token's ttl in ms, idempotency key, fingerprint.
-- Returns {'created'|'replayed', created ms, token id, token expiry ms}.
local stored, conflict = replay(ARGV[8], ARGV[9])
if conflict then return conflict end
if stored then
  local v = redis.call('HMGET', base, 'created', 'first_token')
  if not v[1] then return redis.error_reply('TR not_found') end
  local id, expires = string.match(v[2], '^(%S+) (%S+)$')
  return { 'replayed', v[1], id, expires }
end
if redis.call('EXISTS', base) == 1 then return redis.error_reply('TR conflict') end
local expires = int(now + tonumber(ARGV[7]))
redis.call('HSET', base, 'seq', '0', 'epoch', '0', 'agent', ARGV[1], 'display', ARGV[2], 'label', ARGV[3],
  'created', int(now), 'touched', '0', 'first_token', ARGV[6] .. ' ' .. expires)
redis.call('HSET', base .. ':tokens', ARGV[5], ARGV[6] .. ' ' .. expires)
open_session()
append(ARGV[4])
remember(ARGV[8], ARGV[9], '1', C.idempotency_ttl)
commit()
return { 'created', int(now), ARGV[6], expires }
