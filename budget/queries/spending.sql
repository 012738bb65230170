-- What each candidate cost, rung by rung and outcome by outcome: the verdict, or why nothing was judged (cancelled,
-- purse_ended). The single charges are in `charges`; replays are free; overruns and house seconds are not charged.
-- Charged seconds are summed in whole nanoseconds, as the book keeps them: they are those of `balance` to the last digit.
SELECT
  e.run_id, e.candidate_id, e.rung, ifnull(r.verdict, e.reason) AS outcome, r.code,
  sum(e.kind = 'settle') AS charges, count(r.result_id) AS results, sum(r.replay_of IS NOT NULL) AS replays,
  sum(CAST(round(e.gpu_s * 1e9) AS BIGINT)) / 1e9 AS gpu_s,
  sum(CAST(round(e.cpu_s * 1e9) AS BIGINT)) / 1e9 AS cpu_s,
  sum(CAST(round(e.work_s * 1e9) AS BIGINT)) / 1e9 AS work_s,
  sum(CAST(round(e.overrun_s * 1e9) AS BIGINT)) / 1e9 AS overrun_s,
  total(r.house_s) AS house_s, total(r.queue_s) AS queue_s, total(r.prepare_s) AS prepare_s, total(r.wall_s) AS wall_s
FROM events e
LEFT JOIN results r ON r.event_seq = e.seq
WHERE e.kind = 'settle' OR (e.kind = 'note' AND r.replay_of IS NOT NULL)
GROUP BY e.run_id, e.candidate_id, e.rung, outcome, r.code;
