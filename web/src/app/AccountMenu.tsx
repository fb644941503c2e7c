import { Menu } from "@mantine/core";
import type { ReactNode } from "react";
import { useNavigate } from "react-router";
import { TeamIcon, UserIcon } from "../components/icons.tsx";
import { useActFor } from "../features/teams/use-act-for.ts";
import { useWaitingCount } from "../features/teams/WaitingLink.tsx";
import { shortAddress } from "../lib/address.ts";
import { invalidate } from "../lib/query-keys.ts";
import type { Session } from "../lib/wire.ts";
import { hasWallet, teamOf } from "../shared/session/session-context.ts";
import { useLeave } from "../shared/session/use-leave.ts";
import styles from "./Shell.module.css";

interface AccountMenuProps {
  session: Session;
  /** The page after another account was chosen. */
  after?: string;
}

export function AccountMenu({ session, after = "/agents" }: AccountMenuProps): ReactNode {
  const leave = useLeave();
  const navigate = useNavigate();
  const waiting = useWaitingCount(session);
  const team = teamOf(session);
  return (
    <Menu
      position="top-start"
      width={260}
      shadow="md"
      onOpen={() => {
        // Somebody may have added this person to a team meanwhile.
        void invalidate.session();
      }}
    >
      <Menu.Target>
        <button type="button" className={styles.account}>
          {team ? <TeamIcon size={16} /> : <UserIcon size={16} />}
          <span className="sr-only">Account</span>
          <span className={styles.accountName}>
            {team?.name ?? (hasWallet(session) ? shortAddress(session.address) : "Passkey")}
          </span>
          {waiting > 0 && (
            <span className={styles.waiting}>
              {waiting}
              <span className="sr-only"> waiting for you</span>
            </span>
          )}
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        <Accounts session={session} after={after} />
        <Menu.Item onClick={() => void navigate("/team")}>
          {session.member ? "Members of the team" : "Teams"}
        </Menu.Item>
        {(session.member !== null || waiting > 0) && (
          <Menu.Item
            rightSection={waiting > 0 && waiting}
            onClick={() => void navigate("/waiting")}
          >
            {session.member ? "Waiting orders" : "Invitations"}
          </Menu.Item>
        )}
        {hasWallet(session) && (
          <Menu.Item
            onClick={() => void navigator.clipboard.writeText(session.address).catch(() => {})}
          >
            Copy address
          </Menu.Item>
        )}
        <Menu.Item onClick={() => void navigate("/settings")}>Settings</Menu.Item>
        {session.operator && (
          <Menu.Item onClick={() => void navigate("/operator")}>Operator</Menu.Item>
        )}
        <Menu.Divider />
        <Menu.Item onClick={() => void leave()}>Sign out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

/** One's own account, and the teams with this person's role in each. */
function Accounts({ session, after }: Required<AccountMenuProps>): ReactNode {
  const switchTo = useActFor();
  const { teams, member, address } = session;
  if (teams.length === 0 && !member) return null;
  const own = "own";
  return (
    <>
      <Menu.Label>Act for</Menu.Label>
      <Menu.RadioGroup
        value={member ? address : own}
        onChange={(value) => {
          switchTo.mutate({ owner: value === own ? null : value, to: after });
        }}
      >
        <Menu.RadioItem value={own} closeMenuOnClick>
          Own account
        </Menu.RadioItem>
        {teams.map(({ owner, name, role }) => (
          <Menu.RadioItem key={owner} value={owner} closeMenuOnClick>
            {name}, {role}
          </Menu.RadioItem>
        ))}
      </Menu.RadioGroup>
      <Menu.Divider />
    </>
  );
}
