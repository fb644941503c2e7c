// A service with an owner, and HTTP targets for webhooks whose behaviour a test controls.
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";
import type { FastifyInstance } from "fastify";
import { callApi } from "../helpers/call.ts";
import type { SignedInOwner } from "../helpers/owner.ts";

export interface Received {
  path: string;
  headers: Record<string, string>;
  body: string;
  raw: Buffer;
}

interface Target {
  origin: string;
  received: Received[];
  /** The requests to this path. */
  at(path: string): Received[];
  /** Replaces the response 204. */
  answer(path: string, how: (request: IncomingMessage, response: ServerResponse) => void): void;
  /** Closes all connections; later requests get 204 on every path. */
  hangUp(): void;
}

export async function startTarget(t: Pick<Test, "teardown">): Promise<Target> {
  const received: Received[] = [];
  const answers = new Map<string, (request: IncomingMessage, response: ServerResponse) => void>();
  const server: Server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("error", () => undefined);
    request.on("end", () => {
      const path = request.url ?? "";
      received.push({
        path,
        headers: request.headers as Record<string, string>,
        body: Buffer.concat(parts).toString(),
        raw: Buffer.concat(parts),
      });
      const how = answers.get(path);
      if (how) how(request, response);
      else response.writeHead(204).end();
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return {
    origin: `http://127.0.0.1:${port}`,
    received,
    at: (path) => received.filter((each) => each.path === path),
    hangUp: () => {
      answers.clear();
      server.closeAllConnections();
    },
    answer: (path, how) => void answers.set(path, how),
  };
}

interface NewWebhook {
  id: string;
  secret: string;
}

export type Json = Record<string, unknown>;

/** The requests of the web app for its owner. */
export const api = (app: Pick<FastifyInstance, "inject">, owner: SignedInOwner) => {
  const send = async (method: "GET" | "POST" | "PATCH" | "DELETE", url: string, body?: unknown) =>
    callApi(app, owner, method, url, body);
  return {
    send,
    async webhook(url: string, types: string[] = ["*"]): Promise<NewWebhook> {
      const answer = await send("POST", "/api/webhooks", { url, types });
      if (answer.statusCode !== 201) throw new Error(answer.body);
      const { webhook, secret } = answer.json<{ webhook: { id: string }; secret: string }>();
      return { id: webhook.id, secret };
    },
    async test(id: string): Promise<{ id: string; notificationId: string }> {
      const answer = await send("POST", `/api/webhooks/${id}/test`);
      if (answer.statusCode !== 202) throw new Error(answer.body);
      return answer.json<{ delivery: { id: string; notificationId: string } }>().delivery;
    },
    async deliveries(id: string, query = ""): Promise<Json[]> {
      const answer = await send("GET", `/api/webhooks/${id}/deliveries${query}`);
      return answer.json<{ items: Json[] }>().items;
    },
    async status(id: string): Promise<Json> {
      const { items } = (await send("GET", "/api/webhooks")).json<{ items: Json[] }>();
      return items.find((item) => item["id"] === id) ?? {};
    },
    async notifications(query = ""): Promise<Json[]> {
      return (await send("GET", `/api/notifications${query}`)).json<{ items: Json[] }>().items;
    },
  };
};
