-- Revokes a token by its id (ARGV[1]); readers that stand on it are told. Returns 1, or 0 where there is none.
if not open_session() then return redis.error_reply('TR not_found') end
local all = redis.call('HGETALL', base .. ':tokens')
for i = 1, #all, 2 do
  if string.match(all[i + 1], '^(%S+) ') == ARGV[1] then
    redis.call('HDEL', base .. ':tokens', all[i])
    redis.call(C.publish, base, 'Xtoken ' .. ARGV[1])
    redis.call(C.publish, partition .. 'all', 'T' .. sid())
    return 1
  end
end
return 0
