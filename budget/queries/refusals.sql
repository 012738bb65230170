-- Everything that was refused or admitted against the rule, with the reason and what was missing.
SELECT
  seq, run_id, account_id, candidate_id, rung, kind, refusal_kind, reason, missing,
  json_extract(decision_json, '$.rule') AS rule, json_extract(decision_json, '$.rule_version') AS rule_version,
  json_extract(decision_json, '$.saw') AS saw_json, created_utc
FROM events
WHERE kind IN ('refuse', 'override');
