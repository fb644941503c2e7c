/** The session of a member for a team. It replaces the person's session, and ends when that one would have ended. */
import type { FastifyRequest } from "fastify";
import type { Address } from "viem";
import { ApiError } from "../../errors.ts";
import { noteAudit } from "../audit/store.ts";
import {
  createSessionToken,
  hashSessionToken,
  insertSession,
  revokeSession,
} from "../auth/sessions.ts";
import { findTeam } from "./store.ts";

/** `team`: null for the person's own account. */
export async function actFor(
  request: FastifyRequest,
  team: Address | null,
): Promise<{ address: Address; token: string }> {
  const { owner, server, id: requestId } = request;
  const person = owner.member ?? { ownerId: owner.id, ...pick(owner) };
  const userAgent = (request.headers["user-agent"] ?? "").slice(0, 300);
  const facts = { userAgent, ip: request.ip };
  // Each call makes a session, which has its own limits, and may leave an audit entry.
  await server.countFor("probe", `person:${person.ownerId}`);
  return server.prisma.$transaction(async (tx) => {
    const found = team === null ? undefined : await findTeam(tx, team, person);
    if (team !== null && !found)
      throw new ApiError("not_found", { detail: "You are not a member of this team." });
    const token = createSessionToken();
    const sessionId = await insertSession(tx, {
      ownerId: person.ownerId,
      tokenHash: hashSessionToken(token),
      ...facts,
      passkeyId: owner.passkeyId,
      teamId: found?.id ?? null,
      expiresAt: owner.sessionExpiresAt,
    });
    // The person's devices would go with the old session.
    await tx.pushDevice.updateMany({
      where: { ownerId: person.ownerId, sessionId: owner.sessionId },
      data: { sessionId },
    });
    // Of two requests with one session, one succeeds.
    if (!(await revokeSession(tx, person.ownerId, owner.sessionId)))
      throw new ApiError("not_found", { detail: "This session has ended." });
    if (found)
      await noteAudit(tx, {
        ownerId: found.id,
        agentId: null,
        actor: person.address,
        action: "team.entered",
        before: null,
        after: { sessionId, ...facts },
        requestId,
      });
    return { address: found?.address ?? person.address, token };
  });
}

const pick = ({ address, chainId }: FastifyRequest["owner"]) => ({ address, chainId });
