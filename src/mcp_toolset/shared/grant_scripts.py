"""The scripts of `SharedGrants`: each is one step in the store, which nothing else comes between.

Keys, after the prefix: `g:KEY` is a grant, `r:ID` what came of resolving one id, `grants` and `records` list
them, `o:OWNER:…` lists those of an owner, `d:DIGEST` is a definition. All of them expire.
"""

from __future__ import annotations

from typing import Final

from mcp_toolset.stores.connection import Script

__all__ = ["FIND", "GIVE_BACK", "HELD", "RECORDED", "RECORDS", "REVOKE", "SAVE", "TAKE"]

_COMMON: Final = """
local p = ARGV[1]
local function grant(key)
  local found = redis.call('HMGET', p .. 'g:' .. key, 'json', 'uses', 'revoked')
  return found[1] and found or nil
end
local function record(id)
  local found = redis.call('HMGET', p .. 'r:' .. id, 'json', 'grant')
  if not found[1] then return nil end
  local of = found[2] ~= '' and grant(found[2]) or nil
  return {found[1], found[2], of and of[1] or '', of and of[2] or '', of and of[3] or '1'}
end
local function keep(key, till)
  if redis.call('PEXPIRETIME', key) < tonumber(till) then redis.call('PEXPIREAT', key, till) end
end
"""


def _script(text: str) -> Script:
    return Script(_COMMON + text)


SAVE: Final = _script("""
local now, most_of_owner, most = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local given, definitions = cjson.decode(ARGV[5]), cjson.decode(ARGV[6])
redis.call('ZREMRANGEBYSCORE', p .. 'grants', '-inf', now)
for digest, one in pairs(definitions) do
  redis.call('SET', p .. 'd:' .. digest, one[1], 'NX')
  keep(p .. 'd:' .. digest, one[2])
end
local stands = {}
for _, one in ipairs(given) do
  local standing = one.replayed and record(one.id)
  if standing then
    stands[#stands + 1] = standing
  else
    local key, till, owner = '', one.till, p .. 'o:' .. one.owner
    local number = redis.call('INCR', p .. 'number')
    local g = one.grant
    if g then
      key = g.key
      redis.call('HSET', p .. 'g:' .. key, 'json', g.json, 'uses', g.uses, 'revoked', g.revoked,
        'owner', one.owner, 'source', g.source, 'name', g.name)
      redis.call('PEXPIREAT', p .. 'g:' .. key, till)
      redis.call('ZADD', p .. 'grants', till, key)
      if one.owner ~= '' then
        redis.call('HSET', owner .. ':latest', g.name, key)
        redis.call('ZADD', owner .. ':names', 'NX', number, g.name)
        redis.call('ZADD', owner .. ':grants', number, key)
        while redis.call('ZCARD', owner .. ':grants') > most_of_owner do
          redis.call('DEL', p .. 'g:' .. redis.call('ZPOPMIN', owner .. ':grants')[1])
        end
        keep(owner .. ':latest', till)
        keep(owner .. ':names', till)
        keep(owner .. ':grants', till)
      end
    end
    redis.call('HSET', p .. 'r:' .. one.id, 'json', one.json, 'grant', key)
    redis.call('PEXPIREAT', p .. 'r:' .. one.id, till)
    redis.call('ZADD', p .. 'records', number, one.id)
    redis.call('ZADD', owner .. ':records', number, one.id)
    keep(owner .. ':records', till)
    redis.call('ZREMRANGEBYRANK', p .. 'records', 0, -1 - most)
    redis.call('ZREMRANGEBYRANK', owner .. ':records', 0, -1 - most)
    stands[#stands + 1] = record(one.id)
  end
end
if ARGV[8] ~= '' then redis.call('PUBLISH', ARGV[7], ARGV[8]) end
return stands
""")

FIND: Final = _script("""
local found = grant(ARGV[2])
if found then return found end
if ARGV[3] == '' then return nil end
local key = redis.call('HGET', p .. 'o:' .. ARGV[3] .. ':latest', ARGV[4])
return key and grant(key)
""")

HELD: Final = _script("""
local owner, found = p .. 'o:' .. ARGV[2], {}
for _, name in ipairs(redis.call('ZRANGE', owner .. ':names', 0, -1)) do
  local key = redis.call('HGET', owner .. ':latest', name)
  local one = key and grant(key)
  if one then
    found[#found + 1] = one
  else
    redis.call('ZREM', owner .. ':names', name)
    redis.call('HDEL', owner .. ':latest', name)
  end
end
return found
""")

RECORDED: Final = _script("return record(ARGV[2])")

RECORDS: Final = _script("""
local list, found = p .. ARGV[2], {}
for _, id in ipairs(redis.call('ZRANGE', list, 0, -1)) do
  local one = record(id)
  if one then found[#found + 1] = one else redis.call('ZREM', list, id) end
end
return found
""")

TAKE: Final = _script("""
local found = redis.call('HMGET', p .. 'g:' .. ARGV[2], 'uses', 'revoked')
if not found[1] or found[2] == '1' then return 0 end
if found[1] == '' then return 1 end
if tonumber(found[1]) <= 0 then return 0 end
redis.call('HINCRBY', p .. 'g:' .. ARGV[2], 'uses', -1)
return 1
""")

GIVE_BACK: Final = _script("""
local uses = redis.call('HGET', p .. 'g:' .. ARGV[2], 'uses')
if uses and uses ~= '' then redis.call('HINCRBY', p .. 'g:' .. ARGV[2], 'uses', 1) end
return 0
""")

REVOKE: Final = _script("""
local wanted, channel, message = cjson.decode(ARGV[2]), ARGV[3], ARGV[4]
local keys, count = nil, 0
if wanted.key then
  keys = {wanted.key}
elseif wanted.owner and wanted.owner ~= '' then
  keys = redis.call('ZRANGE', p .. 'o:' .. wanted.owner .. ':grants', 0, -1)
else
  keys = redis.call('ZRANGE', p .. 'grants', 0, -1)
end
for _, key in ipairs(keys) do
  local g = redis.call('HMGET', p .. 'g:' .. key, 'owner', 'source', 'name', 'revoked')
  if g[4] == '0' and (not wanted.owner or wanted.owner == g[1])
      and (not wanted.source or wanted.source == g[2]) and (not wanted.name or wanted.name == g[3]) then
    redis.call('HSET', p .. 'g:' .. key, 'revoked', '1')
    count = count + 1
  end
end
redis.call('PUBLISH', channel, message)
return count
""")
