/** The JSON-RPC response of a call to /mcp: a plain body, or the last event of a stream. */
export function messageOf({ body }: { body: string }): unknown {
  const events = body.split("\n").filter((line) => line.startsWith("data: {"));
  return JSON.parse(events.at(-1)?.slice("data: ".length) ?? body);
}
