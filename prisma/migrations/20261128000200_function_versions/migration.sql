-- Which set of functions is installed. A build never installs an older set than the one that is there; rows of a build
-- that knows no versions have 0.
ALTER TABLE purser_functions ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
