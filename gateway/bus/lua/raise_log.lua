-- Readers were given events that the log may have no longer: a failover lost them. ARGV: the last seq that they know of;
-- the last that they were given, if another event has that number now (else ''). Where events are lost the log goes on
-- above all of them and says so, once. Returns the last seq.
if not open_session() then return redis.error_reply('TR not_found') end
local told = tonumber(redis.call('HGET', base, 'reset') or 0)
if session.seq < tonumber(ARGV[1]) or (ARGV[2] ~= '' and told < tonumber(ARGV[2])) then
  reset_log(tonumber(ARGV[1]))
  commit()
end
return session.seq
