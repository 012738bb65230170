-- What each run was granted, holds open, has settled and may still spend: the purse of its last event.
SELECT
  e.run_id, e.account_id, e.seq AS last_seq, e.created_utc AS last_utc,
  json_extract(e.purse_json, '$.granted.device_s') AS granted_device_s,
  json_extract(e.purse_json, '$.open.device_s') AS open_device_s,
  json_extract(e.purse_json, '$.settled.device_s') AS settled_device_s,
  max(0.0, (json_extract(e.purse_json, '$.granted.device_s')) - (json_extract(e.purse_json, '$.open.device_s'))
    - (json_extract(e.purse_json, '$.settled.device_s'))) AS left_device_s,
  max(0.0, (json_extract(e.purse_json, '$.granted.deadline_s')) - (json_extract(e.purse_json, '$.open.work_s'))
    - (json_extract(e.purse_json, '$.settled.work_s'))) AS left_deadline_s,
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
FROM runs r
JOIN events e ON e.seq = (SELECT max(seq) FROM events l WHERE l.run_id = r.run_id);
