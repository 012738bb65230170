-- Everything that was refused, with the reason and what was missing. What was admitted against the rule is in `overrides`.
SELECT
  seq, run_id, account_id, candidate_id, rung, refusal_kind, reason, missing,
  json_extract(decision_json, '$.rule') AS rule, json_extract(decision_json, '$.rule_version') AS rule_version,
  json_extract(decision_json, '$.saw') AS saw_json, created_utc
FROM events
WHERE kind = 'refuse';
