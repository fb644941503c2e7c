import { queryOptions, useQuery } from "@tanstack/react-query";
import { ApiError, api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import { keepSession } from "../../lib/session.ts";
import { askPasskey, createPasskey, requestIn } from "../../lib/webauthn.ts";
import type {
  Page,
  PasskeyOptions,
  Passkeys,
  Payout,
  Recovery,
  Session,
  SessionRow,
} from "../../lib/wire.ts";

async function ownSession(signal: AbortSignal): Promise<Session | null> {
  try {
    return await api.get<Session>("/api/auth/session", { signal });
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

/** `null` means that no user is signed in, which is not a failure. */
export const sessionQuery = queryOptions({
  queryKey: keys.session,
  queryFn: async ({ signal }): Promise<Session | null> => {
    const session = await ownSession(signal);
    keepSession(session);
    return session;
  },
  staleTime: 60_000,
  refetchOnWindowFocus: "always",
});

export const fetchNonce = (): Promise<{ nonce: string }> => api.get("/api/auth/nonce");

export const verifySignIn = (
  message: string,
  signature: string,
  /** The owner whose recovery wallet signed. */
  owner: string | undefined,
): Promise<{ address: string }> => api.post("/api/auth/verify", { message, signature, owner });

const PASSKEY = "/api/auth/passkey";

/** Creates an owner with a new passkey of this device. */
export async function signUpWithPasskey(name: string): Promise<void> {
  const options = await api.get<PasskeyOptions>(`${PASSKEY}/register-options`);
  const credential = await createPasskey(options.options, `Purser, ${name}`);
  await api.post(`${PASSKEY}/register`, { nonce: options.nonce, name, credential });
}

export async function signInWithPasskey(): Promise<void> {
  const options = await api.get<PasskeyOptions>(`${PASSKEY}/sign-in-options`);
  const credential = await askPasskey(requestIn(options));
  await api.post(`${PASSKEY}/sign-in`, { nonce: options.nonce, credential });
}

/** The owner's passkeys. */
export const passkeysQuery = queryOptions({
  queryKey: keys.passkeys,
  queryFn: ({ signal }) => api.get<Passkeys>("/api/passkeys", { signal }),
});

/** Where an owner without a wallet withdraws to. */
export const payoutQuery = queryOptions({
  queryKey: keys.payout,
  queryFn: ({ signal }) => api.get<Payout>("/api/payout", { signal }),
});

export const recoveryQuery = queryOptions({
  queryKey: keys.recovery,
  queryFn: ({ signal }) => api.get<Recovery>("/api/recovery", { signal }),
});

/** The owner's recovery wallet, where a screen has loaded it already. */
export const useKnownSecond = (): string | undefined =>
  useQuery({ ...recoveryQuery, enabled: false }).data?.second?.address;

export const signOut = (): Promise<unknown> => api.post("/api/auth/logout");

export const sessionsQuery = queryOptions({
  queryKey: keys.sessions,
  queryFn: ({ signal }) =>
    api.get<Page<SessionRow>>("/api/auth/sessions", { signal, query: { limit: 100 } }),
});

export const revokeSession = (id: string): Promise<unknown> =>
  api.delete(`/api/auth/sessions/${id}`);
