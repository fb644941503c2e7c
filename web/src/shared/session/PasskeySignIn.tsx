import { Stack, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note } from "../../components/Layout.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { nameDevice } from "../../lib/device.ts";
import { disconnect } from "../../lib/wallet/connection.ts";
import { type Obstacle, PasskeyCanceled, passkeyObstacle } from "../../lib/webauthn.ts";
import { useInfo } from "../info.ts";
import { signInWithPasskey, signUpWithPasskey } from "./api.ts";
import { useSession } from "./session-context.ts";

/** One button for those who have a passkey; one for newcomers, who name it. */
export function PasskeySignIn({ isRenewal }: { isRenewal: boolean }): ReactNode {
  const info = useInfo();
  const { onSignedIn } = useSession();
  const [name, setName] = useState(() => nameDevice(navigator.userAgent));
  const change = useMutation({
    mutationFn: async (how: "sign-in" | "sign-up") => {
      if (how === "sign-in") await signInWithPasskey();
      else await signUpWithPasskey(name.trim() || "Passkey");
      // Another account's wallet may be connected.
      disconnect();
      await onSignedIn();
    },
  });
  if (!info) return null;
  const obstacle = passkeyObstacle(info);
  if (obstacle) return <NoPasskeys obstacle={obstacle} />;
  const pendingOf = (how: typeof change.variables): string | false =>
    change.isPending && change.variables === how && "Confirm on your device…";
  return (
    <Stack gap="sm">
      <PendingButton
        variant="filled"
        size="lg"
        fullWidth
        pending={pendingOf("sign-in")}
        disabled={pendingOf("sign-up") !== false}
        onClick={() => {
          change.mutate("sign-in");
        }}
      >
        Continue with a passkey
      </PendingButton>
      <div aria-live="polite">
        {change.isError && <Failed error={change.error} isNew={change.variables === "sign-up"} />}
      </div>
      {!isRenewal && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (!change.isPending) change.mutate("sign-up");
          }}
        >
          <Stack gap="sm">
            <TextInput
              label="New here? What to call your passkey"
              description="It opens with your fingerprint, face or PIN. No wallet, e-mail or password."
              maxLength={60}
              value={name}
              onChange={(event) => {
                setName(event.currentTarget.value);
              }}
            />
            <PendingButton
              type="submit"
              fullWidth
              pending={pendingOf("sign-up")}
              disabled={pendingOf("sign-in") !== false}
            >
              Create a passkey
            </PendingButton>
          </Stack>
        </form>
      )}
    </Stack>
  );
}

const Failed = ({ error, isNew }: { error: unknown; isNew: boolean }): ReactNode =>
  error instanceof PasskeyCanceled ? (
    <Note>
      <p role="status">
        {isNew ? "You canceled. No passkey was made." : `${error.message} Nothing was sent.`}
      </p>
    </Note>
  ) : (
    <ErrorNotice
      title={isNew ? "The passkey was not created" : "Signing in failed"}
      error={error}
    />
  );

export const NoPasskeys = ({ obstacle }: { obstacle: NonNullable<Obstacle> }): ReactNode => (
  <Text c="dimmed" size="sm">
    {obstacle.why}{" "}
    {obstacle.elsewhere !== undefined && <a href={obstacle.elsewhere}>{obstacle.elsewhere}</a>}
  </Text>
);
