/** A database that cannot be brought to this build's tables and functions: one line a person can act on. */
export class MigrationError extends Error {
  override name = "MigrationError";
}
