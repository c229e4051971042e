-- A socket takes up a registration. ARGV: client_id, resume key's hash, holder, 'free' to leave another holder alone.
-- Returns {name, ttl, previous holder, then the dispatched events of its open calls as they are now}.
if not open_session() then return redis.error_reply('TR not_found') end
local v = redis.call('HMGET', client_key(ARGV[1]), 'name', 'resume', 'holder', 'ttl')
if not v[1] or v[2] == '' or v[2] ~= ARGV[2] then return redis.error_reply('TR not_found') end
if ARGV[4] == 'free' and v[3] ~= '' and v[3] ~= ARGV[3] then return redis.error_reply('TR not_found') end
if v[3] ~= '' then redis.call('SREM', held_set(v[3]), sid() .. ':' .. ARGV[1]) end
hold(ARGV[1], ARGV[3])
if v[3] ~= '' and v[3] ~= ARGV[3] then redis.call(C.publish, base, 'Xtaken ' .. v[3] .. ' ' .. ARGV[1]) end
local answer = { v[1], v[4], v[3] or '' }
local open = redis.call('HGETALL', base .. ':open')
for i = 1, #open, 2 do
  if open[i + 1] == ARGV[1] then
    local call = load_call(open[i])
    if call and is_open(call) and now < call.due then
      local c = redis.call('HMGET', call_key(call.id), 'tool', 'args', 'seq')
      answer[#answer + 1] = '{"seq":' .. (c[3] or '0') .. ',' .. string.sub(dispatched(call, c[1], c[2]), 2)
    end
  end
end
return answer
