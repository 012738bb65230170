-- What each candidate cost, rung by rung and verdict by verdict. Overruns and house seconds are not charged.
SELECT
  run_id, candidate_id, rung, verdict, code, count(*) AS results, sum(replay_of IS NOT NULL) AS replays,
  sum(gpu_s) AS gpu_s, sum(cpu_s) AS cpu_s, sum(work_s) AS work_s, sum(overrun_s) AS overrun_s,
  sum(house_s) AS house_s, sum(queue_s) AS queue_s, sum(prepare_s) AS prepare_s, sum(wall_s) AS wall_s
FROM results
GROUP BY run_id, candidate_id, rung, verdict, code;
