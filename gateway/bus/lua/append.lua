-- The owner writes events. ARGV: epoch, op, run that ends with them ('' = none), delivery marks ("id mark id mark"),
-- number of fields n, n times (field, value), then payloads. A field '@id' is an approval's state; '?id' denies an
-- approval if nobody has answered it, and its value are the events that say so, a line each; any other field is the
-- session's. A run that ends leaves no open call: each is failed as run_gone before the payloads.
-- Returns the last seq.
if not open_session() then return redis.error_reply('TR not_found') end
local fenced = fence(ARGV[1], ARGV[2])
if fenced == 'repeated' then return session.seq end
if fenced then return fenced end
local fields, at = {}, 6
for _ = 1, tonumber(ARGV[5]) do
  local kind, id = string.sub(ARGV[at], 1, 1), string.sub(ARGV[at], 2)
  if kind == '?' then
    if redis.call('HGET', base .. ':approvals', id) == 'open' then
      redis.call('HSET', base .. ':approvals', id, 'deny')
      for payload in string.gmatch(ARGV[at + 1], '[^\n]+') do append(payload) end
    end
  elseif kind == '@' then
    redis.call('HSET', base .. ':approvals', id, ARGV[at + 1])
    keep(base .. ':approvals')
  else
    fields[#fields + 1], fields[#fields + 2] = ARGV[at], ARGV[at + 1]
  end
  at = at + 2
end
if ARGV[3] ~= '' then
  fail_open_calls()
  if redis.call('HGET', base, 'run') == ARGV[3] then
    redis.call('HDEL', base, 'run', 'run_entry')
  else
    -- A failover lost that it was started, so it waits again; it must not run a second time.
    for _, entry in ipairs(redis.call('LRANGE', base .. ':runs', 0, -1)) do
      if string.sub(entry, 1, 36) == ARGV[3] then redis.call('LREM', base .. ':runs', 1, entry) end
    end
  end
end
mark_delivered(ARGV[4])
for i = at, #ARGV do append(ARGV[i]) end
commit(unpack(fields))
return session.seq
