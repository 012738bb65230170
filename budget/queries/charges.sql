-- Each charge, one row per settle event: which call it was, what came of it, what the run paid and what the house did.
-- `outcome` is the verdict of its result, or why nothing was judged: cancelled, purse_ended.
SELECT
  e.seq, e.run_id, e.account_id, e.candidate_id, e.job_id, e.rung, e.environment_id, e.hold_seq,
  ifnull(r.verdict, e.reason) AS outcome, r.code, r.result_id, e.calls, e.override_calls,
  e.gpu_s, e.cpu_s, e.work_s, e.overrun_s, ifnull(o.work_s, 0.0) AS overrun_work_s, e.created_utc
FROM events e
LEFT JOIN results r ON r.event_seq = e.seq
LEFT JOIN events o ON o.seq = e.seq + 1 AND o.kind = 'overrun' AND o.hold_seq = e.hold_seq  -- it follows its settle
WHERE e.kind = 'settle';
