-- Each candidate with its ancestors' path, oldest first, and how deep it lies.
WITH RECURSIVE line (run_id, candidate_id, root_id, depth, path) AS (
  SELECT run_id, candidate_id, candidate_id, 0, candidate_id FROM candidates WHERE parent_id IS NULL
  UNION ALL
  SELECT c.run_id, c.candidate_id, l.root_id, l.depth + 1, l.path || ' > ' || c.candidate_id
  FROM candidates c JOIN line l ON c.parent_id = l.candidate_id
)
SELECT l.run_id, l.candidate_id, c.parent_id, l.root_id, l.depth, l.path, c.language, c.note, c.created_utc
FROM line l
JOIN candidates c ON c.candidate_id = l.candidate_id;
