-- Settles what is due in a partition, for owners and holders that are gone. KEYS[1] the partition's prefix for sessions
-- (<prefix>:{pNN}:s:), KEYS[2] the due set. ARGV: how many at most. Returns the number settled.
local root, settled = KEYS[1], 0
for _, member in ipairs(redis.call('ZRANGEBYSCORE', due_key, '-inf', int(now), 'LIMIT', 0, tonumber(ARGV[1]))) do
  local kind, id = string.sub(member, 1, 1), string.sub(member, 39)
  base = root .. string.sub(member, 2, 37)
  settled = settled + 1
  if not open_session() then
    redis.call('ZREM', due_key, member)
  elseif kind == 'c' then
    local call = load_call(id)
    if call and is_open(call) then
      settle_if_late(call)
      if is_open(call) then redis.call('ZADD', due_key, int(call.due), member) end
    else
      redis.call('ZREM', due_key, member)
    end
    commit()
  elseif kind == 'h' then
    redis.call('ZREM', due_key, member)
    if not owned() then
      local entry = redis.call('LPOP', base .. ':runs')
      while entry do
        append('{"type":"run_failed","run_id":"' .. string.sub(entry, 1, 36) .. '","error":' .. C.home_gone .. '}')
        entry = redis.call('LPOP', base .. ':runs')
      end
      redis.call('SREM', partition .. 'work', sid())
      commit()
    end
  else
    local expires = redis.call('HGET', client_key(id), 'expires')
    if expires and tonumber(expires) <= now then
      retire(id, 'timed_out', false)
      commit()
      tell_owner('C')
    elseif expires then
      redis.call('ZADD', due_key, expires, member)
    else
      redis.call('ZREM', due_key, member)
    end
  end
end
return settled
