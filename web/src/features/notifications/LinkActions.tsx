import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useLocation, useNavigate } from "react-router";
import { Note } from "../../components/Layout.tsx";
import { LinkAction } from "../../components/LinkAction.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import { confirmEmail, unsubscribe } from "./api.ts";

/** The secret is in the URL's fragment, which browsers do not send to servers. */
function useSecretOfLink(name: string): string | null {
  return new URLSearchParams(useLocation().hash.slice(1)).get(name);
}

/** Opening the emailed link does not confirm the address; the button does. */
export function ConfirmEmail(): ReactNode {
  const token = useSecretOfLink("confirm");
  const navigate = useNavigate();
  const [isDone, setDone] = useState(false);
  const confirm = useMutation({
    mutationFn: () => confirmEmail(token ?? ""),
    onSuccess: () => {
      setDone(true);
      // A used link is useless, so "back" must not lead to it.
      void navigate("/notifications/email", { replace: true });
    },
    onSettled: invalidate.afterEmail,
  });
  if (isDone)
    return (
      <Note color="green">
        <p role="status">Your address is confirmed. Purser sends the e-mails chosen below to it.</p>
      </Note>
    );
  if (token === null) return null;
  return (
    <LinkAction
      title="Confirm your e-mail address"
      mutation={confirm}
      failed="The address was not confirmed"
      confirm="Confirm this address"
      pending="Confirming…"
    >
      Press the button to confirm this address. Purser sends nothing to it before that.
    </LinkAction>
  );
}

/** For every reader of the mailbox, signed in or not. */
export function Unsubscribe(): ReactNode {
  const token = useSecretOfLink("token");
  const stop = useMutation({ mutationFn: () => unsubscribe(token ?? "") });
  if (stop.isSuccess)
    return (
      <Note color="green">
        <p role="status">
          Purser sends nothing more to this address. The account&rsquo;s owner sees this in the app.
        </p>
      </Note>
    );
  if (token === null)
    return <Note color="yellow">This link is incomplete. Open the link in the mail again.</Note>;
  return (
    <LinkAction
      title="Send no more mails to this address?"
      mutation={stop}
      failed="You are still subscribed"
      confirm="Unsubscribe"
      pending="Stopping…"
    >
      These mails report what your agents do with your money. Without them, check the app regularly.
    </LinkAction>
  );
}
