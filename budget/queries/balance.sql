-- What each run was granted, holds open, has settled and may still spend: the purse of its last event. Seconds are read as
-- whole nanoseconds, as the book keeps them, so that what was settled is what `charges` add up to, to the last digit.
WITH latest AS (
  SELECT
    e.run_id, e.account_id, e.seq, e.created_utc, e.purse_json,
    CAST(round(json_extract(e.purse_json, '$.granted.device_s') * 1e9) AS BIGINT) AS granted_device_ns,
    CAST(round(json_extract(e.purse_json, '$.open.device_s') * 1e9) AS BIGINT) AS open_device_ns,
    CAST(round(json_extract(e.purse_json, '$.settled.device_s') * 1e9) AS BIGINT) AS settled_device_ns,
    CAST(round(json_extract(e.purse_json, '$.granted.deadline_s') * 1e9) AS BIGINT) AS granted_work_ns,
    CAST(round(json_extract(e.purse_json, '$.open.work_s') * 1e9) AS BIGINT) AS open_work_ns,
    CAST(round(json_extract(e.purse_json, '$.settled.work_s') * 1e9) AS BIGINT) AS settled_work_ns
  FROM runs r
  JOIN events e ON e.seq = (SELECT max(seq) FROM events l WHERE l.run_id = r.run_id)
)
SELECT
  e.run_id, e.account_id, e.seq AS last_seq, e.created_utc AS last_utc,
  e.granted_device_ns / 1e9 AS granted_device_s, e.open_device_ns / 1e9 AS open_device_s,
  e.settled_device_ns / 1e9 AS settled_device_s,
  max(0, e.granted_device_ns - e.open_device_ns - e.settled_device_ns) / 1e9 AS left_device_s,
  e.open_work_ns / 1e9 AS open_work_s, e.settled_work_ns / 1e9 AS settled_work_s,
  max(0, e.granted_work_ns - e.open_work_ns - e.settled_work_ns) / 1e9 AS left_deadline_s,
  (json_extract(e.purse_json, '$.granted.compile_calls')) - (json_extract(e.purse_json, '$.open.compile_calls'))
    - (json_extract(e.purse_json, '$.settled.compile_calls')) AS left_compile_calls,
  (json_extract(e.purse_json, '$.granted.check_calls')) - (json_extract(e.purse_json, '$.open.check_calls'))
    - (json_extract(e.purse_json, '$.settled.check_calls')) AS left_check_calls,
  (json_extract(e.purse_json, '$.granted.quick_calls')) - (json_extract(e.purse_json, '$.open.quick_calls'))
    - (json_extract(e.purse_json, '$.settled.quick_calls')) AS left_quick_calls,
  (json_extract(e.purse_json, '$.granted.precise_calls')) - (json_extract(e.purse_json, '$.open.precise_calls'))
    - (json_extract(e.purse_json, '$.settled.precise_calls')) AS left_precise_calls,
  (json_extract(e.purse_json, '$.granted.profile_calls')) - (json_extract(e.purse_json, '$.open.profile_calls'))
    - (json_extract(e.purse_json, '$.settled.profile_calls')) AS left_profile_calls,
  EXISTS (SELECT 1 FROM events c WHERE c.run_id = e.run_id AND c.kind = 'close') AS closed
FROM latest e;
