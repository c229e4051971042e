-- A client leaves. ARGV: client_id. Its name is free again and each of its open calls fails. Returns 1.
if not open_session() then return redis.error_reply('TR not_found') end
if redis.call('EXISTS', client_key(ARGV[1])) == 0 then return redis.error_reply('TR not_found') end
retire(ARGV[1], 'departed', false)
commit()
tell_owner('C')
return 1
