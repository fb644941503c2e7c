import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useLocation, useNavigate } from "react-router";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note, Row, Section, Stack } from "../../components/Layout.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import { confirmEmail, unsubscribe } from "./api.ts";

/** Behind the #, where no server sees it. */
function useSecretOfLink(name: string): string | null {
  return new URLSearchParams(useLocation().hash.slice(1)).get(name);
}

/** The link of a mail was opened: nothing has happened yet. */
export function ConfirmEmail(): ReactNode {
  const token = useSecretOfLink("confirm");
  const navigate = useNavigate();
  const [isDone, setDone] = useState(false);
  const confirm = useMutation({
    mutationFn: confirmEmail,
    onSuccess: () => {
      setDone(true);
      // The used link is of no use to whoever comes back to this place.
      void navigate("/notifications/email", { replace: true });
    },
    onSettled: invalidate.afterEmail,
  });
  if (isDone)
    return (
      <Note tone="ok">
        <p role="status">Your address is confirmed. What is chosen below is sent there.</p>
      </Note>
    );
  if (token === null) return null;
  return (
    <Section title="Confirm your e-mail address">
      <Stack gap={4}>
        <p>You opened the link of our mail. Nothing is sent to the address until you confirm it.</p>
        {confirm.error && (
          <ErrorNotice title="The address was not confirmed" error={confirm.error} />
        )}
        <Row>
          <Button
            variant="primary"
            pending={confirm.isPending && "Confirming…"}
            onClick={() => {
              confirm.mutate(token);
            }}
          >
            Confirm this address
          </Button>
        </Row>
      </Stack>
    </Section>
  );
}

/** For whoever reads the mailbox, signed in or not. */
export function Unsubscribe(): ReactNode {
  const token = useSecretOfLink("token");
  const stop = useMutation({ mutationFn: unsubscribe });
  if (stop.isSuccess)
    return (
      <Note tone="ok">
        <p role="status">Nothing more is sent to this address. The app says so to its owner.</p>
      </Note>
    );
  if (token === null)
    return <Note tone="warn">This link is not complete. Open the one in the mail again.</Note>;
  return (
    <Section title="Send no more mails to this address?">
      <Stack gap={4}>
        <p>
          They tell what agents did with an owner&rsquo;s money. Without them, look into the app
          from time to time.
        </p>
        {stop.error && <ErrorNotice title="You are still subscribed" error={stop.error} />}
        <Row>
          <Button
            variant="primary"
            pending={stop.isPending && "Stopping…"}
            onClick={() => {
              stop.mutate(token);
            }}
          >
            Unsubscribe
          </Button>
        </Row>
      </Stack>
    </Section>
  );
}
