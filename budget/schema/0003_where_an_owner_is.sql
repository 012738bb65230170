-- A process number means something in one pid namespace of one boot alone: each job says in which. Rows of earlier versions
-- do not know; their owners are judged by their heartbeats.
ALTER TABLE jobs ADD COLUMN owner_place TEXT NOT NULL DEFAULT '';
