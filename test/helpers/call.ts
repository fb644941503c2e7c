// Requests to the API as an owner's web app or an agent sends them.
import type { FastifyInstance } from "fastify";

interface Caller {
  headers: Record<string, string>;
}

/** A request with a JSON body, or without one. */
export const callApi = (
  app: Pick<FastifyInstance, "inject">,
  { headers }: Caller,
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE",
  url: string,
  body?: unknown,
) =>
  app.inject({
    method,
    url,
    headers,
    ...(body !== undefined && { payload: JSON.stringify(body) }),
  });

/** An agent's spend; with a key, its repeats are one payment. */
export const spendAs = (
  app: Pick<FastifyInstance, "inject">,
  { headers }: Caller,
  body: unknown,
  key?: string,
) =>
  callApi(
    app,
    { headers: { ...headers, ...(key !== undefined && { "idempotency-key": key }) } },
    "POST",
    "/api/agents/spend",
    body,
  );
