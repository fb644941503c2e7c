import fp from "fastify-plugin";
import { completeKey, findKey, insertKey, releaseKey } from "./idempotency-store.ts";
import { Idempotency, type Answer } from "./idempotency.ts";
import { hashBody, readIdempotencyKey, type IdempotencyRef } from "../guardrails/types.ts";
import type { FastifyReply, FastifyRequest } from "fastify";

declare module "fastify" {
  interface FastifyInstance {
    idempotency: Idempotency;
  }
  interface FastifyRequest {
    /** What the Idempotency-Key of this request names; undefined when it has none. */
    idempotencyRef(args: {
      subjectId: string;
      route: string;
      body: unknown;
    }): IdempotencyRef | undefined;
  }
  interface FastifyReply {
    /** Sends an answer, marked when it is a stored one told again. */
    sendAnswer(answer: Answer): FastifyReply;
  }
}

export default fp(
  async (app) => {
    app.decorate(
      "idempotency",
      new Idempotency({
        find: (ref) => findKey(app.pool, ref),
        complete: (ref, answer) => completeKey(app.pool, ref, answer),
        insert: (ref) => insertKey(app.pool, ref),
        release: (ref) => releaseKey(app.pool, ref),
      }),
    );
    app.decorateRequest("idempotencyRef", function idempotencyRef(this: FastifyRequest, args) {
      const key = readIdempotencyKey(this.headers["idempotency-key"]);
      if (key === undefined) return undefined;
      const { subjectId, route } = args;
      return { subjectId, route, key, bodyHash: hashBody(route, args.body) };
    });
    app.decorateReply("sendAnswer", function sendAnswer(this: FastifyReply, answer: Answer) {
      if (answer.replayed) this.header("idempotent-replayed", "true");
      return this.header("cache-control", "no-store").code(answer.statusCode).send(answer.body);
    });
  },
  { name: "idempotency" },
);
