/**
 * Thrown if the database cannot be migrated to this build's tables and functions; the message is one line that an
 * operator can act on.
 */
export class MigrationError extends Error {
  override name = "MigrationError";
}
