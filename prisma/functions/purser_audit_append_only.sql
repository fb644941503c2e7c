-- The audit is append-only also for roles that no grant restricts (a superuser): entries and the ends of chains cannot be
-- changed or deleted.
CREATE FUNCTION purser_audit_append_only() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the audit is append-only: % of % is refused', TG_OP, TG_TABLE_NAME;
END;
$$;
CREATE TRIGGER audit_log_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
  FOR EACH STATEMENT EXECUTE FUNCTION purser_audit_append_only();
ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_log_kept;
CREATE TRIGGER audit_heads_kept BEFORE DELETE OR TRUNCATE ON audit_heads
  FOR EACH STATEMENT EXECUTE FUNCTION purser_audit_append_only();
ALTER TABLE audit_heads ENABLE ALWAYS TRIGGER audit_heads_kept;
CREATE TRIGGER operator_actions_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON operator_actions
  FOR EACH STATEMENT EXECUTE FUNCTION purser_audit_append_only();
ALTER TABLE operator_actions ENABLE ALWAYS TRIGGER operator_actions_kept;
CREATE TRIGGER operator_head_kept BEFORE DELETE OR TRUNCATE ON operator_head
  FOR EACH STATEMENT EXECUTE FUNCTION purser_audit_append_only();
ALTER TABLE operator_head ENABLE ALWAYS TRIGGER operator_head_kept;
