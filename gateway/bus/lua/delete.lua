-- Deletes a session, at most ARGV[1] call records at a time. Returns how many are left to delete (call again).
if not open_session() then return 0 end
local ids = redis.call('ZRANGE', base .. ':calls', 0, tonumber(ARGV[1]) - 1)
for _, id in ipairs(ids) do
  redis.call('UNLINK', call_key(id))
  redis.call('ZREM', due_key, due_member(id))
end
if #ids > 0 then redis.call('ZREM', base .. ':calls', unpack(ids)) end
local left = redis.call('ZCARD', base .. ':calls')
if left > 0 then return left end
for _, client_id in ipairs(redis.call('ZRANGE', base .. ':clients', 0, -1)) do
  redis.call('UNLINK', base .. ':c:' .. client_id)
  redis.call('ZREM', due_key, 'r' .. sid() .. ':' .. client_id)
end
tell_owner('X')
redis.call('UNLINK', base, base .. ':log', base .. ':clients', base .. ':names', base .. ':keys', base .. ':open',
  base .. ':runs', base .. ':tokens', base .. ':calls', base .. ':approvals')
redis.call(C.publish, base, 'Xdeleted')
redis.call(C.publish, partition .. 'all', 'T' .. sid())
return 0
