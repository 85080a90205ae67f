-- Quotas reject a request if all their groups are exceeded. A group is exceeded if one of its
-- limits is.
--@ judge
local groups, count, over, refuses = {}, 0, 0, false
for at = first, last, 2 do
  local ask, at_status = asks[plan[at + 1]], size + (at - first) / 2 * STATUS_SIZE
  local group = ask[ROLE]
  if group >= QUOTA then
    if groups[group] == nil then groups[group], count = false, count + 1 end
    if out[at_status + 1] == 0 then
      if not groups[group] then groups[group], over = true, over + 1 end
      refuses = refuses or ask[EXCESS] ~= OVERDRAFT
    end
  end
end
if count > 0 and over == count then
  rejected = true
  takes_nothing = takes_nothing or refuses
end
