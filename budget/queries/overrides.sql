-- Each promotion against the rule, with its written reason, and whether it paid off. `paid_off` is 1 where the candidate was
-- measured faster than the baseline and than everything settled before it in the run, 0 where it was not or where nothing
-- was judged, NULL while the call is open and where it was released: then the exploration purse got it back.
SELECT
  o.seq, o.run_id, o.account_id, o.candidate_id, o.environment_id, o.reason,
  json_extract(o.decision_json, '$.rule') AS rule, json_extract(o.decision_json, '$.why') AS decision,
  e.seq AS end_seq,
  CASE ifnull(e.kind, '') WHEN '' THEN 'open' WHEN 'release' THEN 'released' ELSE ifnull(r.verdict, e.reason) END AS outcome,
  r.ratio, r.ratio_low, r.ratio_high, b.ratio AS best_ratio_before,
  CASE WHEN e.kind = 'settle' THEN ifnull(r.verdict, '') = 'faster' AND r.ratio > ifnull(b.ratio, 1.0) END AS paid_off,
  CASE WHEN e.kind = 'settle' THEN e.gpu_s ELSE 0.0 END AS gpu_s,
  CASE WHEN e.kind = 'settle' THEN e.cpu_s ELSE 0.0 END AS cpu_s,
  o.created_utc
FROM events o
LEFT JOIN events e ON e.hold_seq = o.seq AND e.kind IN ('settle', 'release')
LEFT JOIN results r ON r.event_seq = e.seq
LEFT JOIN (  -- of each precise result: the best of the others' latest ones before it
  SELECT n.result_id, max(p.ratio) AS ratio
  FROM results n
  JOIN results p ON p.run_id = n.run_id AND p.rung = 'precise' AND p.environment_id = n.environment_id
    AND p.event_seq < n.event_seq AND p.candidate_id <> n.candidate_id AND p.verdict IN ('faster', 'same', 'slower')
  WHERE n.rung = 'precise' AND NOT EXISTS (
    SELECT 1 FROM results l WHERE l.candidate_id = p.candidate_id AND l.rung = 'precise'
    AND l.environment_id = p.environment_id AND l.event_seq > p.event_seq AND l.event_seq < n.event_seq)
  GROUP BY n.result_id
) b ON b.result_id = r.result_id
WHERE o.kind = 'override';
