-- Gives a session a new owner if it still has the expected one. ARGV: expected incarnation ('' = none), node name,
-- incarnation. Returns the new epoch, or '' when somebody else was quicker. The new owner finds what waits by itself.
if not open_session() then return redis.error_reply('TR not_found') end
if (session.owner or '') ~= ARGV[1] then return '' end
commit(give_to(ARGV[2], ARGV[3]))
tell_owner('I')
return session.epoch
