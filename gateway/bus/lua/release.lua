-- A socket that held a registration is gone: its lifetime begins to count. ARGV: client_id, holder.
-- Does nothing when somebody else holds it by now. Returns 1 when it was released.
if not open_session() then return 0 end
local v = redis.call('HMGET', client_key(ARGV[1]), 'holder', 'ttl')
if v[1] ~= ARGV[2] or ARGV[2] == '' then return 0 end
redis.call('HSET', client_key(ARGV[1]), 'holder', '')
if tonumber(v[2]) > 0 then
  local expires = int(now + tonumber(v[2]) * 1000)
  redis.call('HSET', client_key(ARGV[1]), 'expires', expires)
  redis.call('ZADD', due_key, expires, client_due(ARGV[1]))
end
return 1
