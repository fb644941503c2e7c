import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress, type Address } from "viem";
import { ApiError } from "../../errors.ts";
import { SignedIn } from "../../schemas/owners.ts";
import { NewPasskeyBody, PasskeyOptions, PasskeySignInBody } from "../../schemas/passkeys.ts";
import { callerOf } from "../owners/index.ts";
import { issueNonce } from "../owners/sign-in.ts";
import { signInWithPasskey, signUp, type SignInDeps } from "./sign-in.ts";
import { challengeText, creationOptions, signInOptions, type Purpose } from "./webauthn.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: session"];
  const config = {
    auth: "public",
    limit: "sign-in",
    errors: ["passkeys_not_available"],
  } as const;
  const signing = {
    config: {
      ...config,
      errors: ["origin_not_allowed", "invalid_signature", "passkeys_not_available"],
    },
    onRequest: async (request: FastifyRequest) => app.requireOwnOrigin(request),
  } as const;

  app.get(
    "/api/auth/passkey/register-options",
    {
      config,
      schema: {
        tags,
        operationId: "getSignUpOptions",
        summary: "What a browser needs to make the first passkey of a new owner",
        response: { 200: PasskeyOptions },
      },
    },
    async () => optionsFor(app, "create", (text) => creationOptions(depsOf(app).places, text, [])),
  );

  app.post(
    "/api/auth/passkey/register",
    {
      ...signing,
      config: { ...signing.config, errors: [...signing.config.errors, "passkey_known"] },
      schema: {
        tags,
        operationId: "signUpWithPasskey",
        summary: "Create an owner with a new passkey; sets the session cookie",
        body: NewPasskeyBody,
        response: { 200: SignedIn },
      },
    },
    async (request, reply) =>
      answer(request, reply, () => signUp(callerOf(request), request.body, depsOf(app))),
  );

  app.get(
    "/api/auth/passkey/sign-in-options",
    {
      config,
      schema: {
        tags,
        operationId: "getPasskeySignInOptions",
        summary: "What a browser needs to sign in with a passkey",
        response: { 200: PasskeyOptions },
      },
    },
    async () => optionsFor(app, "sign-in", (text) => signInOptions(depsOf(app).places, text)),
  );

  app.post(
    "/api/auth/passkey/sign-in",
    {
      ...signing,
      // After a move the passkey is known here, and its account is in another cell.
      config: { ...signing.config, errors: [...signing.config.errors, "other_cell"] },
      schema: {
        tags,
        operationId: "signInWithPasskey",
        summary: "Sign in with a passkey; sets the session cookie",
        body: PasskeySignInBody,
        response: { 200: SignedIn },
      },
    },
    async (request, reply) =>
      answer(request, reply, () => signInWithPasskey(callerOf(request), request.body, depsOf(app))),
  );
};
export default routes;

/** Throws where the service is reached by an IP address, which has no passkeys. */
export function depsOf(app: FastifyInstance): SignInDeps {
  const { passkeys: places, publicUrl } = app.config;
  if (!places) throw new ApiError("passkeys_not_available");
  return { prisma: app.prisma, places, host: new URL(publicUrl).host };
}

export async function optionsFor(
  app: FastifyInstance,
  purpose: Purpose,
  make: (text: string) => Promise<Record<string, unknown>>,
): Promise<{ nonce: string; options: Record<string, unknown> }> {
  const { prisma, host } = depsOf(app);
  const nonce = await issueNonce(prisma);
  return { nonce, options: await make(challengeText(purpose, host, nonce)) };
}

async function answer(
  request: FastifyRequest,
  reply: FastifyReply,
  signIn: () => Promise<{ address: Address; token: string }>,
): Promise<{ address: Address }> {
  const { nonce } = request.body as { nonce: string };
  // A nonce works once, so the result is a session and not a credential to remember.
  const { address, token } = await request.server.proveCredential(request, nonce, {
    look: signIn,
    isProven: () => true,
  });
  request.server.sessionCookie.set(reply, token);
  return { address: getAddress(address) };
}
