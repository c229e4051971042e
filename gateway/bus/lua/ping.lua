-- A client is still there. ARGV: client_id. Returns the answer's JSON {expires_at}. Nothing is logged.
-- A registration lives until a sweep says that it lapsed: a ping that could not come in time because this server was away
-- finds it still.
local v = redis.call('HMGET', base .. ':c:' .. ARGV[1], 'ttl', 'expires')
if not v[1] then return redis.error_reply('TR not_found') end
local expires = nil
if v[2] then
  expires = now + tonumber(v[1]) * 1000
  redis.call('HSET', base .. ':c:' .. ARGV[1], 'expires', int(expires))
  redis.call('ZADD', due_key, int(expires), client_due(ARGV[1]))
end
return '{"expires_at":' .. expires_json(expires) .. '}'
