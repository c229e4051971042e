-- What incarnations that are gone have left in a partition. KEYS[1] the prefix of its sessions' keys, KEYS[2] its due set.
-- ARGV: how many sessions at most, then the incarnations that are gone.
-- Registrations that their sockets held begin to count their lifetime. Returns {sid, owner, home, sid, owner, home, …} of
-- sessions with work whose owner is among them, or that have no owner.
local root, found, gone = KEYS[1], {}, {}
for i = 2, #ARGV do
  gone[ARGV[i]] = true
  local held = partition .. 'held:' .. ARGV[i]
  for _, member in ipairs(redis.call('SPOP', held, 500)) do
    base = root .. string.sub(member, 1, 36)
    release(string.sub(member, 38), ARGV[i])
  end
end
for _, id in ipairs(redis.call('SMEMBERS', partition .. 'work')) do
  if #found >= 3 * tonumber(ARGV[1]) then break end
  local v = redis.call('HMGET', root .. id, 'seq', 'owner', 'owner_name')
  if not v[1] then
    redis.call('SREM', partition .. 'work', id)
  elseif not v[2] or v[2] == '' or gone[v[2]] then
    found[#found + 1], found[#found + 2], found[#found + 3] = id, v[2] or '', v[3] or ''
  end
end
return found
