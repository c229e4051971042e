-- Gives a session a new owner if it still has the expected one. ARGV: expected incarnation ('' = none), node name,
-- incarnation. Returns the new epoch, or '' when somebody else was quicker. The new owner finds what waits by itself.
if not open_session() then return redis.error_reply('TR not_found') end
if (session.owner or '') ~= ARGV[1] then return '' end
session.owner, session.epoch = ARGV[3], int(tonumber(session.epoch) + 1)
commit('owner', ARGV[3], 'owner_name', ARGV[2], 'epoch', session.epoch)
tell_owner('I')
return session.epoch
