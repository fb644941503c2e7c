/** Says whether an error means "the database cannot be reached right now", for a 503 instead of a 500. */
const SOCKET_CODES = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ENOTFOUND",
  "ETIMEDOUT",
  "ENOENT",
  "EHOSTUNREACH",
]);
const MESSAGES =
  /Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error|the database system is (starting up|shutting down)|Can't reach database server|Cannot use a pool after calling end/;

export function isDatabaseUnavailable(error: unknown, depth = 0): boolean {
  if (!(error instanceof Error) || depth > 4) return false;
  const code = (error as { code?: unknown }).code;
  if (typeof code === "string") {
    // 08*: connection exceptions. 57P01..03: shutdown, crash, starting up. 53300: too many connections.
    if (SOCKET_CODES.has(code) && isFromPostgres(error)) return true;
    if (
      code.startsWith("08") ||
      code.startsWith("57P0") ||
      code === "53300" ||
      code === "P1001" ||
      code === "P1017"
    )
      return true;
  }
  if (MESSAGES.test(error.message)) return true;
  const originalCode = (error.cause as { originalCode?: unknown } | undefined)?.originalCode;
  if (typeof originalCode === "string" && originalCode.startsWith("57P0")) return true;
  return isDatabaseUnavailable(error.cause, depth + 1);
}

/**
 * Says whether Postgres refused a text: NUL cannot be stored or looked for. Every text of a caller
 * ends in a query, so it is told here once instead of in each schema.
 */
export function isTextRefused(error: unknown, depth = 0): boolean {
  if (!(error instanceof Error) || depth > 4) return false;
  const { code, cause } = error as { code?: unknown; cause?: { originalCode?: unknown } };
  // 22021: invalid byte sequence. 22P05: a jsonb escape that is no character.
  if (code === "22021" || code === "22P05" || cause?.originalCode === "22021") return true;
  return isTextRefused(cause, depth + 1);
}

/** Outbound HTTP raises the same socket codes: only those that came through pg or Prisma count here. */
function isFromPostgres(error: Error): boolean {
  return (
    /node_modules\/(pg|pg-pool|@prisma)\b/.test(error.stack ?? "") ||
    error.name.startsWith("Prisma") ||
    error.name === "DriverAdapterError"
  );
}
