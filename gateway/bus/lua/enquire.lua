-- Asks a session's owner something beside its runs. ARGV: candidate owner's node name, its incarnation ('' where the
-- asker knows of none), '1' where any node may own the session (storage "shared"), the question as the owner reads it.
-- Sets the owner where there is none, as an input does; nothing waits here for a home that is away, since whoever asks
-- is waiting himself. Returns {owner's incarnation, its node's name, epoch}.
if not open_session() then return redis.error_reply('TR not_found') end
if redis.call('HEXISTS', base, 'run') == 1 or redis.call('LLEN', base .. ':runs') > 0 then
  return redis.error_reply('TR run_active')
end
local name = redis.call('HGET', base, 'owner_name') or ''
if not owned() and ARGV[2] ~= '' and (name == '' or name == ARGV[1] or ARGV[3] == '1') then
  name = ARGV[1]
  commit(give_to(name, ARGV[2]))
end
if not owned() then return redis.error_reply('TR no_owner') end
tell_owner('Q', session.epoch, ARGV[4])
return { session.owner, name, session.epoch }
