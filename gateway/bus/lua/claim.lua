-- Gives a session a new owner if it still has the expected one. ARGV: expected incarnation ('' = none), new owner's node
-- name ('' = the home stays as it is), its incarnation ('' = nobody for now), what the log says of an active run that the
-- expected owner leaves behind ('' = there is none to leave: it gives the session up by itself), how long its inputs wait
-- for their home in ms. Returns the new epoch, or '' when somebody else was quicker.
-- What the expected owner leaves behind is settled here: its calls, its active run (bridge 10).
if not open_session() then return redis.error_reply('TR not_found') end
if (session.owner or '') ~= ARGV[1] then return '' end
local name = ARGV[2] ~= '' and ARGV[2] or redis.call('HGET', base, 'owner_name') or ''
local run_id = redis.call('HGET', base, 'run')
if run_id and ARGV[4] ~= '' then
  fail_open_calls()
  append('{"type":"run_failed","run_id":"' .. run_id .. '","error":' .. ARGV[4] .. '}')
  redis.call('HDEL', base, 'run', 'run_entry')
end
local fields = { give_to(name, ARGV[3]) }
if not owned() then
  if redis.call('LLEN', base .. ':runs') > 0 then
    redis.call('ZADD', due_key, 'NX', int(now + tonumber(ARGV[5])), home_member())
  else
    redis.call('SREM', partition .. 'work', sid())
  end
end
commit(unpack(fields))
tell_owner('I')
return session.epoch
