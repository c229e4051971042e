-- Deletes a session, at most ARGV[1] call records and as many keys of requests at a time. Returns how many are left to
-- delete (call again).
if not open_session() then return 0 end
local ids = redis.call('ZRANGE', base .. ':calls', 0, tonumber(ARGV[1]) - 1)
for _, id in ipairs(ids) do
  redis.call('UNLINK', call_key(id))
  redis.call('ZREM', due_key, due_member(id))
end
if #ids > 0 then redis.call('ZREM', base .. ':calls', unpack(ids)) end
local left = redis.call('ZCARD', base .. ':calls')
if left > 0 then return left end
local keys = redis.call('ZRANGE', base .. ':idems', 0, tonumber(ARGV[1]) - 1)
for _, key in ipairs(keys) do
  redis.call('UNLINK', base .. ':idem:' .. key)
end
if #keys > 0 then redis.call('ZREM', base .. ':idems', unpack(keys)) end
left = redis.call('ZCARD', base .. ':idems')
if left > 0 then return left end
for _, client_id in ipairs(redis.call('ZRANGE', base .. ':clients', 0, -1)) do
  local holder = redis.call('HGET', base .. ':c:' .. client_id, 'holder')
  if holder and holder ~= '' then redis.call('SREM', held_set(holder), sid() .. ':' .. client_id) end
  redis.call('UNLINK', base .. ':c:' .. client_id)
  redis.call('ZREM', due_key, 'r' .. sid() .. ':' .. client_id)
end
redis.call('ZREM', due_key, home_member())
redis.call('SREM', partition .. 'work', sid())
tell_owner('X')
redis.call('UNLINK', base, base .. ':log', base .. ':clients', base .. ':names', base .. ':keys', base .. ':open',
  base .. ':runs', base .. ':tokens', base .. ':calls', base .. ':approvals')
redis.call(C.publish, base, 'Xdeleted')
redis.call(C.publish, partition .. 'all', 'T' .. sid())
return 0
