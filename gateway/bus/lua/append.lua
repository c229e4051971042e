-- The owner writes events. ARGV: epoch, run that ends with them ('' = none), delivery marks ('' or "id mark id mark"),
-- number of session fields n, n times (field, value), then payloads.
-- Returns the last seq. A run that ends leaves no open call behind: each is failed as run_gone before the payloads.
if not open_session() then return redis.error_reply('TR not_found') end
if session.epoch ~= ARGV[1] then return redis.error_reply('TR fenced') end
local fields, at = {}, 5
for i = 1, tonumber(ARGV[4]) do
  fields[#fields + 1], fields[#fields + 2], at = ARGV[at], ARGV[at + 1], at + 2
end
if ARGV[2] ~= '' then
  local open = redis.call('HKEYS', base .. ':open')
  for _, id in ipairs(open) do
    local call = load_call(id)
    if call and is_open(call) then fail(call, TABLE[call.state]['end'], nil) end
  end
  if redis.call('HGET', base, 'run') == ARGV[2] then redis.call('HDEL', base, 'run') end
end
for id, mark in string.gmatch(ARGV[3], '(%S+) (%S+)') do
  if redis.call('EXISTS', call_key(id)) == 1 then redis.call('HSET', call_key(id), 'delivery', mark) end
end
for i = at, #ARGV do append(ARGV[i]) end
commit(unpack(fields))
return session.seq
