-- A node's lease, and the clock that all nodes agree on. KEYS[1] leases (a sorted set), KEYS[2] what each node says of
-- itself (a hash), KEYS[3] the shift of this server's clock ("generation shift instant"; no key = 0, never shifted).
-- ARGV: incarnation, lease in ms ('0' = give it up), what this node says (JSON), generation of the shift as the node
-- knows it. Returns {now, instant at which the next lease ends if nobody renews it, TIME's two numbers, generation, shift,
-- number of those that live, incarnation, info, … of them, then the incarnations whose lease has ended}. A lease that
-- ended a minute ago is forgotten, so all keys stay as small as the deployment.

-- The shift. A node that has seen this server's clock step says another one than is stored: it is taken from the first
-- who says it, unless another node's lease lies in its future. Then it is that node's own clock which stood still.
local stored = redis.call('GET', KEYS[3])
local generation, agreed, at = 0, 0, now
if stored then
  local g, a, i = string.match(stored, '^(%d+) (-?%d+) (%d+)$')
  generation, agreed, at = tonumber(g), tonumber(a), tonumber(i)
end
if told == '' then
  now = now - agreed
elseif generation <= tonumber(ARGV[4]) and math.abs(shift - agreed) > C.step then
  local behind = false
  local latest = redis.call('ZREVRANGE', KEYS[1], 0, 1, 'WITHSCORES')
  for i = 1, #latest, 2 do
    behind = behind or latest[i] ~= ARGV[1] and tonumber(latest[i + 1]) > told + tonumber(ARGV[2]) + 250
  end
  if not behind then
    generation, agreed, at = tonumber(ARGV[4]) + 1, shift, now
    stored = nil
  end
end
-- It is taken back by a thousandth, so that what is shown to people comes to the server's clock again.
local back = math.min(math.floor((now - at) / 1000), math.abs(agreed))
if back > 0 then
  agreed, at = agreed > 0 and agreed - back or agreed + back, at + back * 1000
  stored = nil
end
if not stored and generation > 0 then
  redis.call('SET', KEYS[3], int(generation) .. ' ' .. int(agreed) .. ' ' .. int(at))
end

if ARGV[2] == '0' then
  redis.call('ZADD', KEYS[1], int(now), ARGV[1]) -- it ends now: what it leaves behind is looked after at once
else
  redis.call('ZADD', KEYS[1], int(now + tonumber(ARGV[2])), ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now - 60000))) do
  redis.call('ZREM', KEYS[1], dead)
  redis.call('HDEL', KEYS[2], dead)
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, C.nodes_ttl) end
local living = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(now), '+inf', 'WITHSCORES')
local answer = { int(now), living[2] or int(now), clock[1], clock[2], int(generation), int(agreed), #living / 2 }
for i = 1, #living, 2 do
  answer[#answer + 1] = living[i]
  answer[#answer + 1] = redis.call('HGET', KEYS[2], living[i])
end
for _, incarnation in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now))) do
  answer[#answer + 1] = incarnation
end
return answer
