/** How each credential is proven: an agent's key, an owner's session, a merchant's key. */
import { createHash, timingSafeEqual } from "node:crypto";
import fp from "fastify-plugin";
import type { FastifyInstance } from "fastify";
import { ApiError } from "../../errors.ts";
import agent from "./agent.ts";
import owner from "./owner.ts";

export default fp(
  async (app) => {
    await app.register(agent);
    await app.register(owner);
    proveFacilitatorKeys(app);
  },
  { name: "auth" },
);

/** Paid APIs: open to all unless FACILITATOR_API_KEYS is set; then a Bearer key is needed. */
function proveFacilitatorKeys(app: FastifyInstance): void {
  const digests = app.config.facilitatorApiKeys.map(digest);
  app.authenticators.set("facilitator", async (request) => {
    if (digests.length === 0) return;
    const [, key] = /^Bearer ([^\s]+)$/i.exec(request.headers.authorization ?? "") ?? [];
    const challenge = { headers: { "www-authenticate": 'Bearer realm="purser facilitator"' } };
    if (key === undefined)
      throw new ApiError("missing_api_key", {
        ...challenge,
        detail: "This facilitator needs `Authorization: Bearer <FACILITATOR_API_KEY>`.",
      });
    const given = digest(key);
    // All are compared, in constant time each: the answer's time tells nothing of a near miss.
    const known = digests.filter((candidate) => timingSafeEqual(candidate, given)).length > 0;
    if (!known) throw new ApiError("invalid_api_key", challenge);
  });
}

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
