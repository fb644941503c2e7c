// The little JSON-RPC the local world needs for anvil's own methods.

export interface RpcCall {
  method: string;
  params: unknown[];
}

interface RpcAnswer {
  id: number;
  result?: unknown;
  error?: { code: number; message: string };
}

/** Sends the calls as one batch and gives their results in order; throws on the first refused one. */
export async function rpcBatch(
  url: string,
  calls: RpcCall[],
  timeoutMs = 10_000,
): Promise<unknown[]> {
  if (calls.length === 0) return [];
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(calls.map((call, id) => ({ jsonrpc: "2.0", id, ...call }))),
    signal: AbortSignal.timeout(timeoutMs),
  });
  const answers = (await response.json()) as RpcAnswer[];
  return calls.map((call, id) => {
    const answer = answers.find((candidate) => candidate.id === id);
    if (answer === undefined || answer.error !== undefined)
      throw new Error(`${call.method}: ${answer?.error?.message ?? "no answer"}`);
    return answer.result;
  });
}

export async function rpc(
  url: string,
  method: string,
  params: unknown[] = [],
  timeoutMs?: number,
): Promise<unknown> {
  const [result] = await rpcBatch(url, [{ method, params }], timeoutMs);
  return result;
}
