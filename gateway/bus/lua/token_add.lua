-- Adds a session token. ARGV: token hash, token id, ttl in ms, idempotency key, fingerprint, bound of live tokens.
-- Returns {'created'|'replayed', token id, expiry ms}.
if not open_session() then return redis.error_reply('TR not_found') end
local stored, conflict = replay(ARGV[4], ARGV[5])
if conflict then return conflict end
if stored then
  local id, expires = string.match(stored, '^(%S+) (%S+)$')
  return { 'replayed', id, expires }
end
local tokens = base .. ':tokens'
if redis.call('HLEN', tokens) >= tonumber(ARGV[6]) then
  local all = redis.call('HGETALL', tokens)
  for i = 1, #all, 2 do
    if tonumber(string.match(all[i + 1], ' (%S+)$')) <= now then redis.call('HDEL', tokens, all[i]) end
  end
  if redis.call('HLEN', tokens) >= tonumber(ARGV[6]) then return redis.error_reply('TR too_many_tokens') end
end
local expires = int(now + tonumber(ARGV[3]))
redis.call('HSET', tokens, ARGV[1], ARGV[2] .. ' ' .. expires)
keep(tokens)
remember(ARGV[4], ARGV[5], ARGV[2] .. ' ' .. expires, C.idempotency_ttl)
return { 'created', ARGV[2], expires }
