/** The JSON-RPC message that answers a call of /mcp: alone, or the last of a stream. */
export function messageOf({ body }: { body: string }): unknown {
  const events = body.split("\n").filter((line) => line.startsWith("data: {"));
  return JSON.parse(events.at(-1)?.slice("data: ".length) ?? body);
}
