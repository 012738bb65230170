-- A process number means something in one pid namespace of one boot alone: each job says in which. Rows of earlier versions
-- do not know; their owners are judged by their heartbeats.
ALTER TABLE jobs ADD COLUMN owner_place TEXT NOT NULL DEFAULT '';
-- With each heartbeat: the hold that the job works under, and the seconds for which it has had the device since that began.
ALTER TABLE jobs ADD COLUMN used_hold_seq INTEGER REFERENCES events (seq);
ALTER TABLE jobs ADD COLUMN used_device_s REAL NOT NULL DEFAULT 0 CHECK (used_device_s >= 0);
-- Whether a client that went on with the run was told that the job was lost. What was lost before this version is long ago.
ALTER TABLE jobs ADD COLUMN loss_told INTEGER NOT NULL DEFAULT 0 CHECK (loss_told IN (0, 1));
UPDATE jobs SET loss_told = 1 WHERE state = 'lost';
